//! The agent that a client certificate names. Its chain, validity and purpose were verified before.

use mgp_protocol::ids::{AgentId, BadAgentName};

/// The prefix of an agent's URI.
pub(crate) const URI_PREFIX: &str = "mgp:agent:";

/// The names in a certificate, as written there.
#[derive(Clone, Copy, Debug, Default)]
pub struct CertificateNames<'a> {
    /// URIs among its alternative names.
    pub uris: &'a [String],
    /// Host names among its alternative names.
    pub hosts: &'a [String],
    /// Common names of its subject.
    pub common: &'a [String],
}

/// Why a certificate names no agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateNameError {
    /// It contains no name of an agent.
    #[error("the certificate names no agent; give it the alternative name URI:{URI_PREFIX}<name>")]
    NoName,
    /// It contains several names.
    #[error(
        "the certificate names more than one agent; give it one alternative name URI:{URI_PREFIX}<name>"
    )]
    Ambiguous,
    /// The name is not valid for an agent.
    #[error("the certificate names no agent: {0}")]
    InvalidName(#[from] BadAgentName),
}

/// The agent a certificate names: by its one URI `mgp:agent:<name>`, else by its one host name, else by its
/// one common name. If a kind of name is present, the later kinds are ignored.
///
/// # Errors
/// [`CertificateNameError`].
pub fn parse_agent(names: CertificateNames<'_>) -> Result<AgentId, CertificateNameError> {
    let uris: Vec<&str> = names
        .uris
        .iter()
        .filter_map(|uri| strip_uri_prefix(uri))
        .collect();
    let lists = [uris, as_strs(names.hosts), as_strs(names.common)];
    let first = lists.iter().find(|list| !list.is_empty());
    match first.map(Vec::as_slice) {
        None => Err(CertificateNameError::NoName),
        Some([name]) => Ok(AgentId::parse(name)?),
        Some(_) => Err(CertificateNameError::Ambiguous),
    }
}

fn strip_uri_prefix(uri: &str) -> Option<&str> {
    let (begin, name) = uri.split_at_checked(URI_PREFIX.len())?;
    begin.eq_ignore_ascii_case(URI_PREFIX).then_some(name)
}

fn as_strs(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(
        uris: &[&str],
        hosts: &[&str],
        common: &[&str],
    ) -> Result<String, CertificateNameError> {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let (uris, hosts, common) = (own(uris), own(hosts), own(common));
        let names = CertificateNames {
            uris: &uris,
            hosts: &hosts,
            common: &common,
        };
        parse_agent(names).map(|agent| agent.to_string())
    }

    #[test]
    fn a_uri_wins_over_a_host_name_and_that_over_a_common_name() {
        let alice = Ok("agent.alice".to_owned());
        assert_eq!(named(&["mgp:agent:alice"], &["b"], &["c"]), alice);
        assert_eq!(named(&["MGP:agent:agent.alice"], &[], &[]), alice);
        assert_eq!(named(&["spiffe://x/y"], &["alice"], &["c"]), alice);
        assert_eq!(named(&[], &[], &["alice"]), alice);
        let host = named(&[], &["build.example"], &[]);
        assert_eq!(host, Ok("agent.build.example".to_owned()));
    }

    /// No certificate names the operator.
    #[test]
    fn missing_ambiguous_and_reserved_names_are_rejected() {
        assert_eq!(named(&[], &[], &[]), Err(CertificateNameError::NoName));
        let two = ["mgp:agent:alice", "mgp:agent:bob"];
        assert_eq!(named(&two, &[], &[]), Err(CertificateNameError::Ambiguous));
        assert_eq!(
            named(&[], &["a", "b"], &[]),
            Err(CertificateNameError::Ambiguous)
        );
        for bad in ["operator", "LOCAL", "", "agent.", "a/b", "*.example", "ä"] {
            let uri = format!("{URI_PREFIX}{bad}");
            let judged = named(&[&uri], &["alice"], &[]);
            assert!(
                matches!(judged, Err(CertificateNameError::InvalidName(_))),
                "{bad}: {judged:?}"
            );
            let judged = named(&[], &[], &[bad]);
            assert!(
                matches!(judged, Err(CertificateNameError::InvalidName(_))),
                "{bad}: {judged:?}"
            );
        }
    }
}
