//! Published servers behind the kernel: whatever they say reaches an agent to the byte, over both
//! doors, as if the agent had started them itself.
#![allow(clippy::unwrap_used)]

mod apps;
mod both_ways;
mod cpersona;
mod everything;
mod everything_over_http;
mod filesystem;
mod folding;
mod git;
mod line_ends;
mod logins;
mod proxies;
mod skills;
mod time;
mod updating;
