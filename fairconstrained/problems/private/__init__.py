"""Problems for private training: solvers see noisy, priced releases and nothing exact."""
