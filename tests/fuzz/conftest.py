"""The fuzzer itself is a program, not tests."""

collect_ignore = ["fuzz.py", "hostile.py", "seeds.py"]
