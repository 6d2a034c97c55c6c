//! Figures for who scrapes them, and traces for who collects them: with real programs on the other side.

#![allow(clippy::unwrap_used)]

mod away;
mod collector;
mod doors;
mod logs;
mod prometheus;
mod scrape;
mod traces;
