//! The console in a real browser: Debian's Chromium, told what to do by its driver (W3C WebDriver).
#![allow(clippy::unwrap_used)]

mod apps;
mod attacks;
mod browser;
mod hosts;
mod layout;
mod looks;
mod nodes;
mod scene;
mod sign_in;
mod skills;
mod story;
