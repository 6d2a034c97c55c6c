//! The registry's responses: the publisher's `server.json`, and the registry's own metadata.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

/// The member of `_meta` with the registry's own metadata.
const OFFICIAL_META_KEY: &str = "io.modelcontextprotocol.registry/official";
/// Longest name, in bytes, by the registry's rules.
const NAME_MAX: usize = 200;

#[derive(Debug, Deserialize)]
pub(super) struct RegistryPage {
    #[serde(default)]
    pub(super) servers: Vec<RegistryEntry>,
    #[serde(default)]
    pub(super) metadata: PageMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RegistryEntry {
    pub(super) server: PublishedServer,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

/// `server.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishedServer {
    pub(super) name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    repository: Option<PublishedRepository>,
    #[serde(default)]
    pub(super) packages: Vec<PublishedPackage>,
    #[serde(default)]
    pub(super) remotes: Vec<PublishedRemote>,
}

#[derive(Debug, Default, Deserialize)]
struct PublishedRepository {
    #[serde(default)]
    url: Option<String>,
}

/// A package that runs it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishedPackage {
    pub(super) registry_type: String,
    #[serde(default)]
    pub(super) registry_base_url: Option<String>,
    pub(super) identifier: String,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) transport: PublishedTransport,
    #[serde(default)]
    pub(super) runtime_arguments: Vec<PublishedInput>,
    #[serde(default)]
    pub(super) package_arguments: Vec<PublishedInput>,
    #[serde(default)]
    pub(super) environment_variables: Vec<PublishedInput>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct PublishedTransport {
    #[serde(default, rename = "type")]
    pub(super) kind: String,
}

/// An address where it runs.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PublishedRemote {
    pub(super) url: String,
    #[serde(default)]
    pub(super) headers: Vec<PublishedInput>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, PublishedInput>,
}

/// An argument, a variable, a header, or a part of one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishedInput {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    value_hint: String,
    /// A fixed value of the publisher.
    #[serde(default)]
    pub(super) value: Option<String>,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) is_required: bool,
    #[serde(default)]
    is_secret: bool,
    #[serde(default)]
    pub(super) default: Option<String>,
    #[serde(default)]
    choices: Vec<String>,
    #[serde(default)]
    format: Option<String>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, PublishedInput>,
}

impl PublishedInput {
    /// Its label: the name, or the hint of an argument without one.
    pub(super) fn label(&self) -> &str {
        if self.name.is_empty() {
            &self.value_hint
        } else {
            &self.name
        }
    }

    /// Whether it is read without echo: it is declared or named as a secret.
    pub(super) fn is_hidden(&self) -> bool {
        self.is_secret || mgp_clients::is_secret_name(self.label())
    }

    /// As a property of a form. Numbers of the registry are text here, as on a command line.
    pub(super) fn schema(&self) -> Value {
        let mut schema = json!({"type": "string"});
        if let Some(description) = &self.description {
            schema["description"] = description.as_str().into();
        }
        if self.format.as_deref() == Some("boolean") {
            schema["enum"] = json!(["true", "false"]);
        }
        if !self.choices.is_empty() {
            schema["enum"] = json!(self.choices);
        }
        if let Some(default) = &self.default {
            schema["default"] = default.as_str().into();
        }
        schema
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The valid values.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        let number = || value.parse::<f64>().is_ok_and(f64::is_finite);
        if !self.choices.is_empty() && !self.choices.iter().any(|choice| choice == value) {
            return Err(format!("is one of {}", self.choices.join(", ")));
        }
        match self.format.as_deref() {
            Some("number") if !number() => Err("is a number".to_owned()),
            Some("boolean") if !["true", "false"].contains(&value) => {
                Err("is true or false".to_owned())
            }
            _ if value.contains(char::is_control) => Err("has no control characters".to_owned()),
            _ => Ok(()),
        }
    }
}

impl PublishedServer {
    pub(super) fn description_or_title(&self) -> &str {
        let described = self.description.as_deref().filter(|text| !text.is_empty());
        described.or(self.title.as_deref()).unwrap_or_default()
    }

    pub(super) fn repository_url(&self) -> Option<&str> {
        self.repository.as_ref()?.url.as_deref()
    }

    /// The supported kinds of its packages.
    pub(super) fn package_kinds(&self) -> Vec<&str> {
        let known = |kind: &str| {
            ["npm", "pypi", "oci"]
                .into_iter()
                .find(|known| *known == kind)
        };
        let packages = self.packages.iter();
        let mut kinds: Vec<&str> = packages
            .map(|package| known(&package.registry_type).unwrap_or("other"))
            .collect();
        if !self.remotes.is_empty() {
            kinds.push("remote");
        }
        kinds.dedup();
        kinds
    }

    /// Whether its name and description contain all of these words.
    pub(super) fn matches_all(&self, words: &[String]) -> bool {
        let title = self.title.as_deref().unwrap_or_default();
        let all = format!("{} {title} {}", self.name, self.description_or_title()).to_lowercase();
        words.iter().all(|word| all.contains(word))
    }
}

/// `io.github.acme/weather`: letters, digits, dots and dashes, and one slash; no confusable characters.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |text: &str, more: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !text.is_empty() && text.chars().all(fits)
    };
    let halves = name.split_once('/');
    name.len() <= NAME_MAX
        && halves.is_some_and(|(who, what)| plain(who, ".-") && plain(what, "._-"))
}

/// The publisher that the registry verified for a name.
pub(super) fn publisher_label(name: &str) -> String {
    let who = name.split('/').next().unwrap_or_default();
    if let Some(account) = who.strip_prefix("io.github.") {
        return format!("who holds the account {account} at GitHub");
    }
    let domain: Vec<&str> = who.split('.').rev().collect();
    format!("who holds {}", domain.join("."))
}

impl RegistryEntry {
    /// `active`, `deprecated` or `deleted`.
    pub(super) fn status(&self) -> &str {
        self.meta[OFFICIAL_META_KEY]["status"]
            .as_str()
            .unwrap_or("active")
    }

    pub(super) fn to_json(&self) -> Value {
        let server = &self.server;
        json!({
            "name": server.name, "version": server.version, "description": server.description_or_title(),
            "kinds": server.package_kinds(), "status": self.status(), "source": server.repository_url(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_names_its_publisher() {
        for good in ["io.github.acme/weather", "com.example/a_b.c-d"] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "weather",
            "io.github.acme/",
            "/x",
            "a/b/c",
            "io.github.\u{430}cme/x",
            "a/b\u{1b}[2J",
            "a b/c",
            "a/$(x)",
        ] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(!is_name(&format!("a/{}", "x".repeat(NAME_MAX))));
        assert_eq!(
            publisher_label("com.example.www/x"),
            "who holds www.example.com"
        );
        assert!(publisher_label("io.github.acme/x").contains("account acme at GitHub"));
    }

    #[test]
    fn values_are_checked() {
        let input = |text: &str| serde_json::from_str::<PublishedInput>(text).unwrap();
        let number = input(r#"{"name": "--port", "format": "number"}"#);
        assert!(number.check("80").is_ok() && number.check("x").is_err());
        let choice = input(r#"{"name": "M", "choices": ["a", "b"]}"#);
        assert!(choice.check("a").is_ok() && choice.check("c").is_err());
        assert!(input("{}").check("a\nb").is_err());
        assert!(input(r#"{"name": "API_KEY"}"#).is_hidden());
    }
}
