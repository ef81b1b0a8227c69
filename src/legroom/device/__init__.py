"""What a card does with any program: followed tensors, scratch of operators, the CUDA allocator, redone updates."""
