//! Servers and hosts of MCPL, scripted.
