//! What servers offer, as agents see it.

mod absent;
mod changes;
mod folders;
mod instances;
mod logging;
mod names;
mod paging;
mod presented;
mod prompts;
mod resources;
