//! The house rules: imports that point down, modules without circles, names that are addresses, what no
//! file may say.
#![allow(clippy::unwrap_used)]

mod docs;
mod drawn;
mod edges;
mod floors;
mod methods;
mod modules;
mod names;
mod platform;
mod reader;
mod spawns;
mod words;
mod workspace;
