def detect_sparsity(f, y): raise NotImplementedError
