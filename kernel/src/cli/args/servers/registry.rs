//! `mgp servers search`, and what `mgp servers add` takes of the registry.

use clap::Args;

/// Which registry.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RegistryAddress {
    /// The registry, when it is not that of [registry] url in mgp.toml.
    #[arg(long, value_name = "URL")]
    pub(crate) registry: Option<String>,
}

/// `mgp servers search`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp servers search weather
  mgp servers search file system --max 50
  mgp servers search weather --json | jq -r '.servers[].name'

Names, titles and descriptions are what whoever published a server wrote. A name begins with who that is:
io.github.acme/… is somebody who holds the account acme at GitHub, com.example/… who holds example.com.")]
pub struct Search {
    /// Words that its name, title or description has.
    #[arg(required = true)]
    pub(crate) words: Vec<String>,
    /// Maximum number of results.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub max: u64,
    /// Which registry.
    #[command(flatten)]
    pub(crate) address: RegistryAddress,
}

/// Options of `mgp servers add` for a name of the registry.
#[derive(Clone, Debug, Default, Args)]
pub struct RegistryOptions {
    /// Its id here; by default the last part of its name.
    #[arg(long = "as", value_name = "ID", conflicts_with_all = ["command", "url"])]
    pub(crate) called: Option<String>,
    /// This version instead of the newest.
    #[arg(long, value_name = "VERSION", conflicts_with_all = ["command", "url"])]
    pub(crate) release: Option<String>,
    /// The kind of package: npm, pypi, oci, or remote; by default the first that can be run.
    #[arg(long, value_name = "KIND", value_parser = ["npm", "pypi", "oci", "remote"], conflicts_with_all = ["command", "url"])]
    pub(crate) package: Option<String>,
    /// A required value that is no secret: an argument, a variable or a part of its address.
    #[arg(long, value_name = "NAME=VALUE", allow_hyphen_values = true, conflicts_with_all = ["command", "url"])]
    pub(crate) set: Vec<String>,
    /// Add it without asking.
    #[arg(short, long, conflicts_with_all = ["command", "url"])]
    pub(crate) yes: bool,
    /// Show what would be added, and change nothing.
    #[arg(long, conflicts_with_all = ["command", "url", "yes"])]
    pub(crate) dry_run: bool,
    /// Which registry.
    #[command(flatten)]
    pub(crate) address: RegistryAddress,
}
