//! The errors of MCPL (appendix A).
