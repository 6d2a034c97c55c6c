//! A flag that goes up once and can be waited for.

use tokio::sync::SetOnce;

/// A flag that goes up once and can be waited for.
#[derive(Debug, Default)]
pub struct Flag(SetOnce<()>);

impl Flag {
    /// Puts the flag up; again is the same.
    pub fn raise(&self) {
        let _ = self.0.set(());
    }

    /// True once it is up.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.initialized()
    }

    /// Resolves when it is up.
    pub async fn wait_until_raised(&self) {
        self.0.wait().await;
    }
}
