//! Named secrets: their storage, and how the configuration reads them.

mod command;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use mgp_discovery::ConfigLookup;
use mgp_engine::doors::suggestions::nearest;
use mgp_store::secrets::{Namespace, SecretStore};
use nix::unistd::{User, geteuid};
use secrecy::{ExposeSecret, SecretString};

use crate::config::{Lookup, SecretsConfig};

/// The key file, below the home: apart from the sealed files, and hidden from sandboxed servers like everything there.
const KEY_FILE: &str = ".local/share/mgp/secrets.key";

/// The named secrets of a user.
#[derive(Clone, Debug)]
pub(crate) struct NamedSecrets {
    store: Option<SecretStore>,
    /// Whether the home is that of the account, to which the keyring belongs.
    is_account_home: bool,
}

impl NamedSecrets {
    /// The secrets of the user who reads this configuration.
    #[must_use]
    pub(crate) fn for_look_up(look_up: &ConfigLookup) -> Self {
        let home = look_up.home.as_deref();
        let place = look_up.sealed_folder().zip(home);
        Self {
            store: place.map(|(folder, home)| SecretStore::new(&folder, &home.join(KEY_FILE))),
            is_account_home: home.is_some_and(is_account_home),
        }
    }

    /// The configured store; `None` without a home.
    #[must_use]
    pub(crate) fn store(&self, secrets: &SecretsConfig) -> Option<SecretStore> {
        let store = self.store.clone()?;
        if secrets.keyring.unwrap_or(self.is_account_home) {
            Some(store.with_keyring())
        } else {
            Some(store)
        }
    }

    /// The file that changes with them, to be watched.
    #[must_use]
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let store = self.store.as_ref()?;
        Some(store.file(Namespace::Named))
    }

    /// Reads a secret from the store, or from the configured command.
    ///
    /// # Errors
    /// A description with the remedy.
    pub(crate) fn read(&self, name: &str, secrets: &SecretsConfig) -> Result<SecretString, String> {
        let store = self.store(secrets);
        if let Some(store) = &store {
            let kept = store.get(Namespace::Named, name);
            if let Some(value) = kept.map_err(|e| e.to_string())? {
                return Ok(value);
            }
        }
        if !secrets.command.is_empty() {
            return command::run_command(&secrets.command, name);
        }
        let Some(store) = store else {
            return Err("there is no home, where secrets are kept".to_owned());
        };
        let kept = store.list(Namespace::Named).unwrap_or_default();
        Err(
            match nearest(name, kept.iter().map(|kept| kept.name.as_str())) {
                Some(near) => format!("there is no secret {name}; did you mean {near}?"),
                None => format!("there is no secret {name}; `mgp secrets set {name}` asks for it"),
            },
        )
    }
}

fn is_account_home(home: &Path) -> bool {
    let account = User::from_uid(geteuid()).ok().flatten();
    account.is_some_and(|account| account.dir == home)
}

/// Resolves the kernel's own variables and its user's secrets. Each secret is read once per load.
pub(crate) struct KernelLookup {
    secrets: NamedSecrets,
    cache: RefCell<BTreeMap<(String, SecretsConfig), Result<SecretString, String>>>,
}

impl KernelLookup {
    #[must_use]
    pub(crate) fn for_look_up(look_up: &ConfigLookup) -> Self {
        Self {
            secrets: NamedSecrets::for_look_up(look_up),
            cache: RefCell::default(),
        }
    }
}

impl Lookup for KernelLookup {
    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }

    fn secret(&self, name: &str, secrets: &SecretsConfig) -> Result<String, String> {
        let mut had = self.cache.borrow_mut();
        let place = (name.to_owned(), secrets.clone());
        let read = || self.secrets.read(name, secrets);
        let secret = had.entry(place).or_insert_with(read);
        secret
            .clone()
            .map(|secret| secret.expose_secret().to_owned())
    }

    fn resolved_secrets(&self) -> Vec<String> {
        let had = self.cache.borrow();
        let secrets = had.values().filter_map(|had| had.as_ref().ok());
        secrets
            .map(|secret| secret.expose_secret().to_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{self, LoadedConfig};

    /// A home with a configuration file.
    struct Home {
        root: tempfile::TempDir,
        look_up: ConfigLookup,
    }

    impl Home {
        fn new(text: &str) -> Self {
            let root = tempfile::tempdir().unwrap();
            let look_up = ConfigLookup {
                home: Some(root.path().join("home")),
                current_dir: root.path().join("work"),
                ..ConfigLookup::default()
            };
            let file = look_up.user_file().unwrap();
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::create_dir_all(&look_up.current_dir).unwrap();
            fs::write(file, text).unwrap();
            Self { root, look_up }
        }

        fn set(&self, name: &str, value: &str) {
            let store = NamedSecrets::for_look_up(&self.look_up).store(&SecretsConfig::default());
            store
                .unwrap()
                .set(Namespace::Named, name, &value.into())
                .unwrap();
        }

        fn load(&self, held: Option<&str>) -> LoadedConfig {
            config::load_with_env(
                &self.look_up,
                &KernelLookup::for_look_up(&self.look_up),
                held,
            )
            .unwrap()
        }
    }

    fn said(loaded: &LoadedConfig) -> String {
        let problems = loaded
            .problems
            .iter()
            .map(|problem| problem.message.as_str());
        problems.collect::<Vec<_>>().join("\n")
    }

    const ENTRY: &str = "[[servers]]\nid = \"a\"\ncommand = \"c\"\n[servers.env]\nT = \"secret:github\"\nU = \"p://${secret:pw}@h\"\n";

    #[test]
    fn named_secrets_of_an_entry_are_resolved_and_masked() {
        let home = Home::new(ENTRY);
        let messages = said(&home.load(None));
        assert!(messages.contains("mgp secrets set github"), "{messages}");
        home.set("github", "s3cret");
        home.set("pw", "pa55word");
        home.set("other", "not named");
        let loaded = home.load(None);
        assert_eq!(said(&loaded), "");
        let secrets = loaded.secrets();
        for value in ["s3cret", "pa55word", "p://pa55word@h"] {
            assert!(secrets.iter().any(|secret| secret == value), "{value}");
        }
        assert!(!secrets.iter().any(|secret| secret == "not named"));
        assert!(!format!("{loaded:?}").contains("s3cret"));
        let misspelt = Home::new(&ENTRY.replace("secret:github", "secret:githbu"));
        misspelt.set("github", "s3cret");
        misspelt.set("pw", "x");
        let messages = said(&misspelt.load(None));
        assert!(
            messages.contains("did you mean github?") && !messages.contains("s3cret"),
            "{messages}"
        );
    }

    /// A project's file gets no secret before its user has reviewed which ones it names, nor after a change.
    #[test]
    fn an_untrusted_project_reads_no_secret() {
        let home = Home::new("");
        home.set("github", "s3cret");
        home.set("pw", "pa55word");
        fs::write(home.look_up.project_file(), ENTRY).unwrap();
        let loaded = home.load(None);
        assert!(loaded.servers.is_empty() && loaded.secrets().is_empty());
        let held = ENTRY.replace("U = \"p://${secret:pw}@h\"\n", "");
        let place = crate::trust::trusted_path(&home.look_up.project_file()).unwrap();
        let file = home.look_up.trust_file();
        crate::trust::modify_store(file.as_deref(), |entries| {
            entries.push(crate::trust::TrustedFile {
                file: place,
                blake3: crate::trust::hash(&held),
                at: String::new(),
            });
        })
        .unwrap();
        let loaded = home.load(Some(&held));
        assert_eq!(loaded.secrets(), ["s3cret", "s3cret"]);
    }

    /// The command is run only for named secrets that are not stored.
    #[test]
    fn the_command_provides_secrets_that_are_not_stored() {
        let home = Home::new("");
        let queried = home.root.path().join("asked");
        let script = home.root.path().join("pass");
        let text = format!(
            "#!/bin/sh\necho \"$1\" >> {}\n[ \"$1\" = op://v/github ] && echo s3cret && exit\necho 'no such item' >&2\nexit 1\n",
            queried.display()
        );
        fs::write(&script, text).unwrap();
        let config = format!(
            "[secrets]\ncommand = [\"sh\", \"{}\", \"op://v/{{name}}\"]\n{ENTRY}",
            script.display()
        );
        fs::write(home.look_up.user_file().unwrap(), config).unwrap();
        let loaded = home.load(None);
        let messages = said(&loaded);
        assert!(
            messages.contains("no such item") && messages.contains("pw"),
            "{messages}"
        );
        home.set("pw", "kept");
        let loaded = home.load(None);
        assert_eq!(said(&loaded), "");
        assert!(loaded.secrets().contains(&"s3cret".to_owned()));
        let queried = fs::read_to_string(queried).unwrap();
        assert_eq!(queried, "op://v/github\nop://v/pw\nop://v/github\n");
    }
}
