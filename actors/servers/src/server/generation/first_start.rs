//! First starts of servers on demand: each loads a program only for its lists, so few of them do so at once.

use std::sync::PoisonError;

use super::ServerGeneration;
use super::end::End;

impl ServerGeneration {
    /// Waits until fewer servers are in their first start. A server that a caller waits for goes first.
    ///
    /// # Errors
    /// It is stopped meanwhile.
    pub(super) async fn wait_for_first_start(&self) -> Result<(), End> {
        let is_for_lists = self.spec.start.is_on_demand()
            && self.handle.agent().is_none()
            && !self.handle.has_offered();
        if !is_for_lists {
            return Ok(());
        }
        let starts = self.connector.spawner.first_starts().clone();
        let permit = tokio::select! {
            permit = starts.acquire_owned() => permit.ok(),
            () = self.handle.wait_for_caller() => None,
            end = self.wait_for_stop() => return Err(end),
        };
        *self.lock_first_start() = permit;
        Ok(())
    }

    /// Lets the next server start: this one has its lists.
    pub(super) fn finish_first_start(&self) {
        self.lock_first_start().take();
    }

    fn lock_first_start(
        &self,
    ) -> std::sync::MutexGuard<'_, Option<tokio::sync::OwnedSemaphorePermit>> {
        self.first_start
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
