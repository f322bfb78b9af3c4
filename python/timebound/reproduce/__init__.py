"""The papers' experiments: each runs its cells, keeps what is finished, and holds its figures against the paper's statements."""
