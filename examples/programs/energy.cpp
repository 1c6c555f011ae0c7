// A potential that `dcnn export RUN -o potential.pt2 --aot` wrote, called for one molecule of water:
//   energy potential.pt2
#include <iomanip>
#include <iostream>
#include <vector>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: energy potential.pt2\n";
    return 2;
  }
  const c10::InferenceMode mode;
  torch::inductor::AOTIModelPackageLoader potential(argv[1]);

  const auto whole = torch::kLong;
  const auto real = torch::kDouble;
  const auto z = torch::tensor({8, 1, 1}, whole);
  const auto positions =
      torch::tensor({0.0, 0.0, 0.0, 0.96, 0.0, 0.0, -0.24, 0.93, 0.0}, real).view({3, 3});  // Å
  const auto pair_i = torch::tensor({0, 0, 1}, whole);  // every pair within the cutoff, once
  const auto pair_j = torch::tensor({1, 2, 2}, whole);
  const auto shift = torch::zeros({3, 3}, real);
  const auto cell = torch::zeros({1, 3, 3}, real);  // a molecule
  const auto system = torch::zeros({3}, whole);

  const std::vector<torch::Tensor> found =
      potential.run({z, positions, pair_i, pair_j, shift, cell, system});
  std::cout << std::setprecision(15);
  const char* names[] = {"energy", "forces", "stress", "atomic_energies"};
  for (size_t n = 0; n < found.size(); ++n) {
    const auto flat = found[n].contiguous().view(-1);
    std::cout << names[n];
    for (int64_t k = 0; k < flat.numel(); ++k) std::cout << ' ' << flat[k].item<double>();
    std::cout << '\n';
  }
}
