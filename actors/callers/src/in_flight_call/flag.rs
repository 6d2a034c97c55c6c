//! A flag that is raised once and can be awaited.

use tokio::sync::SetOnce;

/// A flag that is raised once and can be awaited.
#[derive(Debug, Default)]
pub struct Flag(SetOnce<()>);

impl Flag {
    /// Raises the flag; idempotent.
    pub fn raise(&self) {
        let _ = self.0.set(());
    }

    /// True if it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.initialized()
    }

    /// Resolves when it is raised.
    pub async fn wait_until_raised(&self) {
        self.0.wait().await;
    }
}
