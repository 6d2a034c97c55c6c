//! `[oauth]`: the issuer whose tokens are accepted over HTTP.

use std::path::PathBuf;

use mgp_engine::doors::bearer::{Algorithm, GroupMapping};
use mgp_engine::policy::access::CONFIGURED_GROUPS_MAX;
use mgp_protocol::ids::GroupName;

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
        /// The groups that its claims give.
        groups: GroupMapping = GroupMapping {
            claim: "groups".into(),
            ..GroupMapping::default()
        }, read_with(read_group_mapping);
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

/// `groups` maps the issuer's groups to those here, `group_claim` names the claim that lists the former, and
/// `group_scopes` the scope that a token needs for what a group is allowed.
fn read_group_mapping(section: &mut Section<'_, '_, '_>, into: &mut GroupMapping) {
    section.string("group_claim", &mut into.claim);
    if matches!(into.claim.as_str(), "scope" | "scp")
        && let Some(span) = section.span("group_claim")
    {
        let why = " is not a scope: a scope takes away and gives nothing; see `group_scopes`";
        section.reject_key(span, "group_claim", why);
    }
    for (name, group) in section.text_map("groups") {
        match GroupName::parse(group.get_ref()) {
            Ok(group) => drop(into.map.insert(name.to_owned(), group)),
            Err(why) => {
                section.reject_key(group.span(), &format!("groups.{name}"), &format!(": {why}"));
            }
        }
    }
    if into.map.len() > CONFIGURED_GROUPS_MAX
        && let Some(span) = section.span("groups")
    {
        let why = format!(" maps at most {CONFIGURED_GROUPS_MAX} groups");
        section.reject_key(span, "groups", &why);
    }
    for (name, scope) in section.text_map("group_scopes") {
        let group = GroupName::parse(name).ok();
        match group.filter(|group| into.map.values().any(|mapped| mapped == group)) {
            Some(group) => drop(into.scopes.insert(group, scope.get_ref().to_string())),
            None => {
                let why = ": no claim gives this group, see `groups`";
                section.reject_key(scope.span(), &format!("group_scopes.{name}"), why);
            }
        }
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
