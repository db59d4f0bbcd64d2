"""Inside a trained model: attention maps, what each head does, Figures 3 to 5."""
