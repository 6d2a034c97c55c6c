//! `[oauth]`: the issuer whose tokens are accepted over HTTP.

use std::path::PathBuf;

use mgp_engine::doors::bearer::Algorithm;

use crate::config::parsing::{ReadSection, Section};
use crate::config::sections::http::broker::BrokerConfig;
use crate::config::sections::section;

section! {
    /// `[oauth]`.
    OAuthConfig {
        /// The issuer of the tokens.
        issuer: String = String::new(), safe_url("issuer");
        /// The URL of `/mcp` as clients know it; `None` to derive it from the listen address.
        resource: Option<String> = None, read_with(|section, into| read_url(section, "resource", into));
        /// Further accepted audiences.
        audience: Vec<String> = Vec::new(), strings("audience");
        /// The URL of the issuer's keys; `None` to use its metadata.
        jwks_url: Option<String> = None, read_with(|section, into| read_url(section, "jwks_url", into));
        /// A file with the issuer's keys; has precedence over `jwks_url`.
        jwks_file: Option<PathBuf> = None, path("jwks_file");
        /// The claim that names the agent.
        agent_claim: String = "sub".into(), string("agent_claim");
        /// Scopes a token must have.
        scopes: Vec<String> = Vec::new(), strings("scopes");
        /// The accepted algorithms.
        algorithms: Vec<Algorithm> = vec![
            Algorithm::Rs256,
            Algorithm::Ps256,
            Algorithm::Es256,
            Algorithm::EdDsa,
        ], read_with(read_algorithms);
        /// Whether the kernel's own tokens are accepted, too.
        accept_tokens: bool = true, flag("accept_tokens");
        /// Whether access tokens must be bound to a key (RFC 9449).
        require_dpop: bool = false, flag("require_dpop");
        /// `[oauth.broker]`: people sign in at the issuer, and the kernel issues the tokens.
        broker: Option<BrokerConfig> = None, read_with(read_broker);
    }
}

fn read_broker(oauth: &mut Section<'_, '_, '_>, into: &mut Option<BrokerConfig>) {
    let broker = oauth.subsection("broker", |section| {
        let mut broker = BrokerConfig::default();
        broker.read(section);
        section.is_present().then_some(broker)
    });
    let Some(broker) = broker else { return };
    *into = Some(broker);
    for key in ["audience", "scopes"] {
        let span = oauth.span(key);
        let names = oauth.texts(key).unwrap_or_default();
        if let (Some(span), false) = (span, names.is_empty()) {
            let why =
                "says nothing with [oauth.broker]: its tokens are the kernel's own, for `resource`";
            oauth.warn(span, format!("`{key}` in [oauth] {why}"));
        }
    }
}

fn read_url(section: &mut Section<'_, '_, '_>, key: &'static str, into: &mut Option<String>) {
    let mut url = String::new();
    section.safe_url(key, &mut url);
    if section.span(key).is_some() {
        *into = Some(url.trim_end_matches('/').to_owned());
    }
}

fn read_algorithms(section: &mut Section<'_, '_, '_>, into: &mut Vec<Algorithm>) {
    let Some(names) = section.texts("algorithms") else {
        return;
    };
    into.clear();
    for name in names {
        if let Some(algorithm) = Algorithm::parse(name.get_ref()) {
            into.push(algorithm);
            continue;
        }
        let known: Vec<_> = Algorithm::ALL.iter().map(|(name, _)| *name).collect();
        let why = format!(
            " are some of {}: those where only the issuer can sign",
            known.join(", ")
        );
        section.reject_key(name.span(), "algorithms", &why);
    }
}
