//! `mgp __manual-pages`: a page for each command, for packages.

use std::io;
use std::path::Path;

use clap::CommandFactory as _;

use super::args::Cli;

pub(super) fn write(folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Cli::command(), folder)
}
