//! Where the values come from that a file only refers to.

/// What a word of the command holds in the place of the name.
pub(crate) const NAME: &str = "{name}";

/// `[secrets]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretsConfig {
    /// Whether the keyring of the desktop is used; where nothing is said, for the home of the account alone.
    pub keyring: Option<bool>,
    /// A program that is asked for what is not kept here, with its arguments; empty where there is none.
    pub command: Vec<String>,
}

/// The kernel's variables, and the secrets that are kept by their names.
pub trait Lookup {
    /// A variable; `None` where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// A secret, as far as `[secrets]` of the files so far says where secrets are.
    ///
    /// # Errors
    /// In words, with what to do.
    fn secret(&self, name: &str, secrets: &SecretsConfig) -> Result<String, String>;

    /// Every secret that was had so far: it is masked where it might be seen.
    fn had(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Variables alone, for whom values do not matter: a secret is then whatever a variable of its name is.
impl<F: Fn(&str) -> Option<String>> Lookup for F {
    fn variable(&self, name: &str) -> Option<String> {
        self(name)
    }

    fn secret(&self, name: &str, _: &SecretsConfig) -> Result<String, String> {
        self(name).ok_or_else(|| "secrets are not read for this".to_owned())
    }
}
