//! Which agent a credential belongs to, and how long it is valid.

use std::time::Duration;

use mgp_protocol::ids::AgentId;
use tokio_util::sync::CancellationToken;

use mgp_runtime::time::unix_ms;

/// The longest timer that is set; after it the clock is read again, because it may have been changed.
const GLANCE: Duration = Duration::from_secs(60);

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
    life: Option<CancellationToken>,
}

impl Credential {
    /// Valid as long as the kernel runs.
    #[must_use]
    pub fn lasting(agent: AgentId) -> Self {
        Self {
            agent,
            operator: false,
            until_ms: None,
            life: None,
        }
    }

    /// The operator's, valid until this is cancelled.
    #[must_use]
    pub fn of_operator(life: CancellationToken) -> Self {
        let operator = Self::lasting(AgentId::new("operator"));
        Self {
            operator: true,
            ..operator.alive(life)
        }
    }

    /// True for the operator's.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.operator
    }

    /// Valid until then, in milliseconds since 1970.
    #[must_use]
    pub fn until(mut self, until_ms: Option<u64>) -> Self {
        self.until_ms = until_ms;
        self
    }

    /// Valid until then at most, in milliseconds since 1970.
    #[must_use]
    pub fn no_later_than(mut self, end_ms: u64) -> Self {
        self.until_ms = Some(self.until_ms.map_or(end_ms, |until| until.min(end_ms)));
        self
    }

    /// Valid until this is cancelled.
    #[must_use]
    pub fn alive(mut self, life: CancellationToken) -> Self {
        self.life = Some(life);
        self
    }

    /// True when it never expires and cannot be revoked.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.until_ms.is_none() && self.life.is_none()
    }

    /// True when it was revoked, not just expired.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.life
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
    }

    /// True once it has expired or was revoked.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_withdrawn() || self.until_ms.is_some_and(|until| until <= unix_ms())
    }

    /// Resolves when it has expired or was revoked.
    pub async fn over(self) {
        let withdrawn = async {
            match &self.life {
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
                tokio::time::sleep(left.min(GLANCE)).await;
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
        Credential::lasting(AgentId::new("agent.a"))
    }

    #[tokio::test]
    async fn a_pass_ends_when_it_is_withdrawn_or_its_time_is_over() {
        assert!(pass().is_lasting() && !pass().is_over());
        let life = CancellationToken::new();
        let withdrawn = pass().alive(life.clone());
        assert!(!withdrawn.is_over());
        life.cancel();
        assert!(withdrawn.is_over());
        withdrawn.over().await;
        let short = pass().until(Some(unix_ms() + 20));
        assert!(!short.is_over());
        short.clone().over().await;
        assert!(short.is_over());
    }
}
