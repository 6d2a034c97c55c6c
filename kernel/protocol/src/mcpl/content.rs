//! Content blocks (MCPL §10.3, appendix B.1).
