//! Which agent a credential belongs to, and how long it is valid.

use std::time::Duration;

use mgp_protocol::ids::AgentId;
use tokio_util::sync::CancellationToken;

use mgp_runtime::time::unix_ms;

/// The longest timer that is set; after it the clock is read again, because it may have been changed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A credential that was accepted.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The agent.
    pub agent: AgentId,
    /// It is the operator's: of a browser that is signed in to the console, and of nobody else.
    operator: bool,
    /// When it expires, in milliseconds since 1970.
    until_ms: Option<u64>,
    /// Cancelled when the credential is revoked.
    revocation: Option<CancellationToken>,
}

impl Credential {
    /// Valid as long as the kernel runs.
    #[must_use]
    pub fn permanent(agent: AgentId) -> Self {
        Self {
            agent,
            operator: false,
            until_ms: None,
            revocation: None,
        }
    }

    /// The operator's, valid until this is cancelled.
    #[must_use]
    pub fn for_operator(life: CancellationToken) -> Self {
        let operator = Self::permanent(AgentId::new("operator"));
        Self {
            operator: true,
            ..operator.with_revocation(life)
        }
    }

    /// True for the operator's.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.operator
    }

    /// Valid until then, in milliseconds since 1970.
    #[must_use]
    pub fn with_expiry(mut self, until_ms: Option<u64>) -> Self {
        self.until_ms = until_ms;
        self
    }

    /// Valid until then at most, in milliseconds since 1970.
    #[must_use]
    pub fn with_latest_expiry(mut self, end_ms: u64) -> Self {
        self.until_ms = Some(self.until_ms.map_or(end_ms, |until| until.min(end_ms)));
        self
    }

    /// Valid until this is cancelled.
    #[must_use]
    pub(crate) fn with_revocation(mut self, life: CancellationToken) -> Self {
        self.revocation = Some(life);
        self
    }

    /// True when it never expires and cannot be revoked.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.until_ms.is_none() && self.revocation.is_none()
    }

    /// True when it was revoked, not just expired.
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
                Some(life) => life.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let expired = async {
            let Some(until) = self.until_ms else {
                return std::future::pending().await;
            };
            loop {
                let left = Duration::from_millis(until.saturating_sub(unix_ms()));
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
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

    fn pass() -> Credential {
        Credential::permanent(AgentId::new("agent.a"))
    }

    #[tokio::test]
    async fn a_pass_ends_when_it_is_withdrawn_or_its_time_is_over() {
        assert!(pass().is_permanent() && !pass().has_ended());
        let life = CancellationToken::new();
        let withdrawn = pass().with_revocation(life.clone());
        assert!(!withdrawn.has_ended());
        life.cancel();
        assert!(withdrawn.has_ended());
        withdrawn.wait_until_ended().await;
        let short = pass().with_expiry(Some(unix_ms() + 20));
        assert!(!short.has_ended());
        short.clone().wait_until_ended().await;
        assert!(short.has_ended());
    }
}
