//! `context/*`: hooks before and after an inference (MCPL §10).
