//! Accepted credentials: their agent, expiry and revocation.

use std::time::Duration;

use mgp_engine::policy::access::ClaimedGroups;
use mgp_protocol::ids::AgentId;
use tokio_util::sync::CancellationToken;

use mgp_runtime::time::unix_ms;

/// The longest timer; after it the clock is read again, because it may have been changed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A credential that was accepted.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The agent.
    pub agent: AgentId,
    /// The groups that its token gives it.
    pub groups: ClaimedGroups,
    /// True for the operator's credential: a browser that is signed in to the console.
    operator: bool,
    /// When it expires, in milliseconds since 1970.
    until_ms: Option<u64>,
    /// Cancelled when the credential is revoked.
    revocation: Option<CancellationToken>,
}

impl Credential {
    /// A credential without expiry.
    #[must_use]
    pub fn permanent(agent: AgentId) -> Self {
        Self {
            agent,
            groups: ClaimedGroups::default(),
            operator: false,
            until_ms: None,
            revocation: None,
        }
    }

    /// The operator's credential, valid until `revocation` is cancelled.
    #[must_use]
    pub fn for_operator(revocation: CancellationToken) -> Self {
        let operator = Self::permanent(AgentId::new("operator"));
        Self {
            operator: true,
            ..operator.with_revocation(revocation)
        }
    }

    /// True for the operator's credential.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.operator
    }

    /// Sets the groups of its token.
    #[must_use]
    pub fn with_groups(mut self, groups: ClaimedGroups) -> Self {
        self.groups = groups;
        self
    }

    /// Sets the expiry, in milliseconds since 1970.
    #[must_use]
    pub fn with_expiry(mut self, until_ms: Option<u64>) -> Self {
        self.until_ms = until_ms;
        self
    }

    /// Limits the expiry to `end_ms`, in milliseconds since 1970.
    #[must_use]
    pub fn with_latest_expiry(mut self, end_ms: u64) -> Self {
        self.until_ms = Some(self.until_ms.map_or(end_ms, |until| until.min(end_ms)));
        self
    }

    /// Revokes the credential when `revocation` is cancelled.
    #[must_use]
    pub fn with_revocation(mut self, revocation: CancellationToken) -> Self {
        self.revocation = Some(revocation);
        self
    }

    /// True if it never expires and cannot be revoked.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.until_ms.is_none() && self.revocation.is_none()
    }

    /// True if it was revoked, not just expired.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.revocation
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
    }

    /// True once it has expired or was revoked.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_revoked() || self.until_ms.is_some_and(|until| until <= unix_ms())
    }

    /// Resolves when it has expired or was revoked.
    pub async fn wait_until_ended(self) {
        let withdrawn = async {
            match &self.revocation {
                Some(revocation) => revocation.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let expired = async {
            let Some(until) = self.until_ms else {
                return std::future::pending().await;
            };
            loop {
                let remaining = Duration::from_millis(until.saturating_sub(unix_ms()));
                if remaining.is_zero() {
                    return;
                }
                tokio::time::sleep(remaining.min(CLOCK_CHECK_INTERVAL)).await;
            }
        };
        tokio::select! {
            () = withdrawn => {}
            () = expired => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential() -> Credential {
        Credential::permanent(AgentId::new("agent.a"))
    }

    #[tokio::test]
    async fn credential_ends_on_revocation_and_on_expiry() {
        assert!(credential().is_permanent() && !credential().has_ended());
        let revocation = CancellationToken::new();
        let withdrawn = credential().with_revocation(revocation.clone());
        assert!(!withdrawn.has_ended());
        revocation.cancel();
        assert!(withdrawn.has_ended());
        withdrawn.wait_until_ended().await;
        let short = credential().with_expiry(Some(unix_ms() + 20));
        assert!(!short.has_ended());
        short.clone().wait_until_ended().await;
        assert!(short.has_ended());
    }
}
