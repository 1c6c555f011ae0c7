"""Of every network: presets, published names of its sizes, and where published weights go."""
