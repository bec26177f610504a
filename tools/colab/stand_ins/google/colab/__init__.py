"""What lessons use of Colab's own package, so that they take their way through Colab."""
