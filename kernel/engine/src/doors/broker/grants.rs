//! Grants: what a person allowed a client, with the tokens that are derived from it. A token is a sealed record that
//! names its grant; none is stored.

use std::collections::{BTreeSet, HashMap};

use mgp_protocol::ids::{AgentId, GroupName};
use serde::{Deserialize, Serialize};

use super::{ACCESS_LIFETIME_MS, OauthError};
use crate::callers::seal::{Purpose, SealKey};
use crate::doors::agent_registry::TokenDigest;

/// Most grants in all: 256 people with all their clients. At the bound the one that was unused for longest ends.
const GRANTS_MAX: usize = 4096;
/// Most grants of one agent: a person has a handful of clients. A further one ends the one that was unused for longest.
const AGENT_GRANTS_MAX: usize = 16;

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its random id.
    pub id: String,
    /// The agent.
    pub agent: AgentId,
    /// The groups that the provider's claims gave at the sign-in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<GroupName>,
    /// The fingerprint of the mapping that read them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mapping: String,
    /// The client.
    pub client: TokenDigest,
    /// The displayed name of the client.
    pub client_name: String,
    /// The resource of its tokens.
    pub resource: String,
    /// The thumbprint of the key that its tokens are bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When the person signed in, in milliseconds since 1970.
    pub created_ms: u64,
    /// When its last token was issued.
    pub used_ms: u64,
    /// When it ends.
    pub expires_ms: u64,
    /// The number of its refresh token; older ones were used. `None` for a grant without refresh tokens.
    pub generation: Option<u32>,
}

/// The sealed contents of an access token.
#[derive(Serialize, Deserialize)]
struct AccessRecord {
    #[serde(rename = "g")]
    grant: String,
    #[serde(rename = "e")]
    expires_ms: u64,
}

/// The sealed contents of a refresh token.
#[derive(Serialize, Deserialize)]
struct RefreshRecord {
    #[serde(rename = "g")]
    grant: String,
    #[serde(rename = "n")]
    generation: u32,
}

/// The tokens of one response.
#[derive(Clone, PartialEq, Eq)]
pub struct NewTokens {
    /// The access token.
    pub access: String,
    /// How long it is valid, in seconds.
    pub expires_secs: u64,
    /// The refresh token.
    pub refresh: Option<String>,
    /// Whether both are bound to a key.
    pub bound: bool,
}

impl std::fmt::Debug for NewTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewTokens(…)")
    }
}

/// Why a refresh token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefreshError {
    /// It is invalid for this client.
    Invalid(OauthError),
    /// It was used before: a thief or the client has its successor, so the grant has ended (RFC 9700, section 4.14.2).
    Reused(Box<Grant>),
}

/// All grants.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    grants: HashMap<String, Grant>,
}

impl Grants {
    /// From the stored ones. With a mapping of groups, those of another one end: what their groups are denied would not
    /// count.
    #[must_use]
    pub fn from_records(records: Vec<Grant>, mapping: &str) -> Self {
        let is_known = |grant: &Grant| mapping.is_empty() || grant.mapping == mapping;
        let grants = records.into_iter().filter(is_known).take(GRANTS_MAX);
        Self {
            grants: grants.map(|grant| (grant.id.clone(), grant)).collect(),
        }
    }

    /// For storage, in the order of their ids.
    #[must_use]
    pub fn to_records(&self) -> Vec<&Grant> {
        let mut records: Vec<&Grant> = self.grants.values().collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        records
    }

    /// Adds a grant. Returns those that ended for it, and expired ones.
    pub fn add(&mut self, grant: Grant, now_ms: u64) -> Vec<Grant> {
        let mut ended: Vec<Grant> = self
            .grants
            .extract_if(|_, it| it.expires_ms <= now_ms)
            .map(|(_, it)| it)
            .collect();
        let own = |it: &&Grant| it.agent == grant.agent;
        let least_used = |grants: &mut dyn Iterator<Item = &Grant>| {
            grants.min_by_key(|it| it.used_ms).map(|it| it.id.clone())
        };
        let id = if self.grants.values().filter(own).count() >= AGENT_GRANTS_MAX {
            least_used(&mut self.grants.values().filter(own))
        } else if self.grants.len() >= GRANTS_MAX {
            least_used(&mut self.grants.values())
        } else {
            None
        };
        ended.extend(id.and_then(|id| self.grants.remove(&id)));
        self.grants.insert(grant.id.clone(), grant);
        ended
    }

    /// The grant of an access token that has not expired.
    #[must_use]
    pub fn authenticate(&self, token: &str, seal: &SealKey, now_ms: u64) -> Option<(&Grant, u64)> {
        let opened = seal.open::<AccessRecord>(Purpose::BrokerAccess, "", token);
        let record = opened.ok().filter(|record| record.expires_ms > now_ms)?;
        let grant = self.grants.get(&record.grant)?;
        (grant.expires_ms > now_ms).then_some((grant, record.expires_ms.min(grant.expires_ms)))
    }

    /// The grant that a refresh token belongs to, if its client may use it with the key of this proof. The grant changes
    /// with [`Grants::rotate`].
    ///
    /// # Errors
    /// [`RefreshError`]; the grant of a reused token is removed.
    pub fn check_refresh(
        &mut self,
        token: &str,
        client: TokenDigest,
        key: Option<&str>,
        seal: &SealKey,
        now_ms: u64,
    ) -> Result<Grant, RefreshError> {
        let invalid = |why: &str| RefreshError::Invalid(OauthError::invalid_grant(why));
        let opened = seal.open::<RefreshRecord>(Purpose::BrokerRefresh, "", token);
        let record = opened.map_err(|_| invalid("the refresh token is unknown"))?;
        let found = self.grants.get(&record.grant);
        let grant = found.filter(|grant| grant.expires_ms > now_ms);
        let grant = grant.ok_or_else(|| invalid("the grant has ended; sign in again"))?;
        if grant.client != client {
            return Err(invalid("the refresh token was issued to another client"));
        }
        if grant.key.as_deref() != key {
            return Err(invalid("the refresh token is bound to another key"));
        }
        if grant.generation != Some(record.generation) {
            let ended = self.grants.remove(&record.grant);
            let ended = ended.ok_or_else(|| invalid("the grant has ended; sign in again"))?;
            return Err(RefreshError::Reused(Box::new(ended)));
        }
        Ok(grant.clone())
    }

    /// Replaces the refresh token of a grant.
    pub fn rotate(&mut self, id: &str, now_ms: u64) -> Option<&Grant> {
        let grant = self.grants.get_mut(id)?;
        grant.generation = grant.generation.map(|it| it.wrapping_add(1));
        grant.used_ms = now_ms;
        Some(grant)
    }

    /// The grant of an access or refresh token, valid or not.
    #[must_use]
    pub fn find_by_token(&self, token: &str, seal: &SealKey) -> Option<&Grant> {
        let access = || {
            let opened = seal.open::<AccessRecord>(Purpose::BrokerAccess, "", token);
            opened.ok().map(|record| record.grant)
        };
        let refresh = || {
            let opened = seal.open::<RefreshRecord>(Purpose::BrokerRefresh, "", token);
            opened.ok().map(|record| record.grant)
        };
        self.grants.get(&access().or_else(refresh)?)
    }

    /// Ends a grant.
    pub fn remove(&mut self, id: &str) -> Option<Grant> {
        self.grants.remove(id)
    }

    /// Ends the grants of an agent.
    pub fn remove_agent(&mut self, agent: &AgentId) -> Vec<Grant> {
        let own = self.grants.extract_if(|_, grant| grant.agent == *agent);
        own.map(|(_, grant)| grant).collect()
    }

    /// The grants that have not expired.
    pub fn iter(&self, now_ms: u64) -> impl Iterator<Item = &Grant> {
        self.grants
            .values()
            .filter(move |grant| grant.expires_ms > now_ms)
    }
}

impl Grant {
    /// Its next tokens.
    #[must_use]
    pub fn issue_tokens(&self, seal: &SealKey, now_ms: u64) -> NewTokens {
        let expires_ms = self.expires_ms.min(now_ms + ACCESS_LIFETIME_MS);
        let access = AccessRecord {
            grant: self.id.clone(),
            expires_ms,
        };
        let refresh = |generation| RefreshRecord {
            grant: self.id.clone(),
            generation,
        };
        NewTokens {
            access: seal.seal(Purpose::BrokerAccess, "", &access),
            expires_secs: expires_ms.saturating_sub(now_ms) / 1000,
            refresh: self
                .generation
                .map(|n| seal.seal(Purpose::BrokerRefresh, "", &refresh(n))),
            bound: self.key.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn seal() -> SealKey {
        SealKey::new([7; 32])
    }

    fn client() -> TokenDigest {
        TokenDigest::new("c")
    }

    fn grant(id: &str, agent: &str, used_ms: u64) -> Grant {
        Grant {
            id: id.into(),
            agent: AgentId::new(format!("agent.{agent}")),
            groups: BTreeSet::new(),
            mapping: String::new(),
            client: client(),
            client_name: "Desk".into(),
            resource: "https://h/mcp".into(),
            key: None,
            created_ms: NOW,
            used_ms,
            expires_ms: NOW + 7 * 86_400_000,
            generation: Some(0),
        }
    }

    fn with_one() -> (Grants, NewTokens) {
        let mut grants = Grants::default();
        grants.add(grant("g", "a", NOW), NOW);
        let tokens = grants.grants["g"].issue_tokens(&seal(), NOW);
        (grants, tokens)
    }

    /// EXT-228: an access token is valid for an hour, and for as long as its grant.
    #[test]
    fn access_token_ends_with_its_hour_and_its_grant() {
        let (mut grants, tokens) = with_one();
        let is_valid =
            |grants: &Grants, token: &str, at| grants.authenticate(token, &seal(), at).is_some();
        assert_eq!(tokens.expires_secs, 3600);
        assert!(is_valid(
            &grants,
            &tokens.access,
            NOW + ACCESS_LIFETIME_MS - 1
        ));
        assert!(!is_valid(&grants, &tokens.access, NOW + ACCESS_LIFETIME_MS));
        let refresh = tokens.refresh.as_deref().unwrap();
        for other in [refresh, "", "mgp1.AAAA", &tokens.access[1..]] {
            assert!(!is_valid(&grants, other, NOW), "{other}");
        }
        let foreign = grants.authenticate(&tokens.access, &SealKey::new([8; 32]), NOW);
        assert!(foreign.is_none());
        let end = NOW + 7 * 86_400_000;
        let last = grants.grants["g"].issue_tokens(&seal(), end - 5000);
        assert_eq!(last.expires_secs, 5);
        assert!(!is_valid(&grants, &last.access, end));
        assert!(grants.remove("g").is_some());
        assert!(!is_valid(&grants, &tokens.access, NOW));
    }

    /// EXT-228: each refresh token works once; a second use ends the grant for thief and client alike.
    #[test]
    fn reused_refresh_token_ends_the_grant() {
        let (mut grants, tokens) = with_one();
        let first = tokens.refresh.unwrap();
        let check = |grants: &mut Grants, token: &str, client, key| {
            grants.check_refresh(token, client, key, &seal(), NOW)
        };
        for (client, key) in [(TokenDigest::new("d"), None), (client(), Some("k"))] {
            let refused = check(&mut grants, &first, client, key);
            assert!(matches!(refused, Err(RefreshError::Invalid(_))));
        }
        let access = check(&mut grants, &tokens.access, client(), None);
        assert!(matches!(access, Err(RefreshError::Invalid(_))));
        assert!(check(&mut grants, &first, client(), None).is_ok());
        let second = grants
            .rotate("g", NOW + 1)
            .unwrap()
            .issue_tokens(&seal(), NOW);
        let second = second.refresh.unwrap();
        assert_ne!(first, second);
        // Stored and loaded, as over a restart.
        let records = grants.to_records().into_iter().cloned().collect();
        let mut grants = Grants::from_records(records, "");
        assert!(check(&mut grants, &second, client(), None).is_ok());
        let reused = check(&mut grants, &first, client(), None);
        assert!(matches!(reused, Err(RefreshError::Reused(ended)) if ended.id == "g"));
        let after = check(&mut grants, &second, client(), None);
        assert!(matches!(after, Err(RefreshError::Invalid(_))));
        assert!(grants.authenticate(&tokens.access, &seal(), NOW).is_none());
    }

    /// EXT-252: a sign-in whose groups were read by another mapping ends, as what they are denied would not count; without
    /// a mapping nothing is read.
    #[test]
    fn grant_of_another_mapping_is_not_loaded() {
        let records = |mapping: &str| {
            let mut stored = grant("g", "a", NOW);
            stored.mapping = mapping.into();
            vec![stored]
        };
        for (stored, current, stays) in [
            ("", "", true),
            ("a", "a", true),
            ("a", "", true),
            ("", "a", false),
            ("a", "b", false),
        ] {
            let loaded = Grants::from_records(records(stored), current);
            assert_eq!(!loaded.grants.is_empty(), stays, "{stored:?} {current:?}");
        }
    }

    /// EXT-230: an agent's further grant ends its own least used one; only at the bound of all does another's end.
    #[test]
    fn grants_are_bounded_for_each_agent_and_in_all() {
        let mut grants = Grants::default();
        grants.add(grant("b", "b", NOW - 1000), NOW);
        for n in 0..AGENT_GRANTS_MAX as u64 {
            assert!(
                grants
                    .add(grant(&format!("a{n}"), "a", NOW + n), NOW)
                    .is_empty()
            );
        }
        let ended = grants.add(grant("more", "a", NOW + 99), NOW);
        assert_eq!(ended.iter().map(|it| &*it.id).collect::<Vec<_>>(), ["a0"]);
        for n in 0..GRANTS_MAX {
            grants.add(grant(&format!("c{n}"), &format!("c{n}"), NOW), NOW);
        }
        assert_eq!(grants.grants.len(), GRANTS_MAX);
        assert!(!grants.grants.contains_key("b"));
        let later = NOW + 8 * 86_400_000;
        let mut last = grant("last", "z", later);
        last.expires_ms = later + 1;
        assert_eq!(grants.add(last, later).len(), GRANTS_MAX);
        assert_eq!(grants.remove_agent(&AgentId::new("agent.z")).len(), 1);
    }
}
