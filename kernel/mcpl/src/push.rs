//! Push events: checked, told once, and answered the same each time (MCPL §9).
