//! `[oauth.broker]`: the kernel as authorization server in front of an identity provider.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::config::parsing::Section;
use crate::config::sections::{DAY, section};

/// The shortest secret of a client, in bytes: with fewer it could be guessed.
const SECRET_BYTES_MIN: usize = 16;

section! {
    /// `[oauth.broker]`.
    BrokerConfig {
        /// The kernel's client id at the provider.
        client_id: String = String::new(), string("client_id");
        /// Its secret there; a public client of the provider has none.
        client_secret: ClientSecret = ClientSecret::default(), read_with(read_client_secret);
        /// The scopes that are requested at the provider.
        scopes: Vec<String> = ["openid", "profile", "email"].map(Into::into).to_vec(), strings("scopes");
        /// Claims that a person must have: this value, or a list with it.
        require_claims: BTreeMap<String, String> = BTreeMap::new(), read_with(read_required_claims);
        /// Clients that may show assertions of the provider (SEP-990), with their secrets.
        clients: ClientSecrets = ClientSecrets::default(), read_with(read_clients);
        /// How long a person stays signed in. The provider is not asked again before.
        session: Duration = Duration::from_secs(7 * DAY), secs("session_secs", 600..=90 * DAY);
        => Self::check;
    }
}

/// A secret. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientSecret(pub(crate) String);

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// Ids of clients, and their secrets. `Debug` shows the ids.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientSecrets(pub(crate) BTreeMap<String, String>);

impl fmt::Debug for ClientSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.keys(), f)
    }
}

fn read_client_secret(section: &mut Section<'_, '_, '_>, into: &mut ClientSecret) {
    let value = section.secret("client_secret");
    if !value.is_empty() {
        into.0 = value;
    }
}

fn read_required_claims(section: &mut Section<'_, '_, '_>, into: &mut BTreeMap<String, String>) {
    let claims = section.text_map("require_claims").into_iter();
    into.extend(claims.map(|(name, value)| (name.to_owned(), value.get_ref().to_string())));
}

fn read_clients(section: &mut Section<'_, '_, '_>, into: &mut ClientSecrets) {
    let clients = section.text_map("clients");
    let resolved = section.resolve_secrets("clients", &clients);
    for (id, secret) in resolved {
        // What is not resolved while only the shape of a file is checked is no secret.
        let is_literal = clients
            .get(id.as_str())
            .is_some_and(|text| *text.get_ref() == secret);
        if is_literal && secret.len() < SECRET_BYTES_MIN {
            let span = section.span("clients").unwrap_or_default();
            section.reject_key(
                span,
                "clients",
                " wants secrets of 16 characters or more, like \"secret:NAME\"",
            );
        }
        into.0.insert(id, secret);
    }
}

impl BrokerConfig {
    fn check(&mut self, section: &mut Section<'_, '_, '_>) {
        if self.client_id.is_empty() && section.is_present() {
            let words =
                "[oauth.broker] names no `client_id`: the kernel's at the identity provider";
            section.reject(section.start_span(), words);
        }
        if let Some(span) = section.span("scopes")
            && !self.scopes.iter().any(|scope| scope == "openid")
        {
            section.reject_key(
                span,
                "scopes",
                " wants \"openid\": it is what brings the ID token",
            );
        }
    }
}
