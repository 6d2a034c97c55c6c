//! The models of agents, as hooks reported them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_protocol::ids::ConnectionId;
use mgp_protocol::mcpl::model::ModelDescription;

/// Stored models; the oldest report is evicted first.
const MODELS_MAX: usize = 1024;

/// The models of agents. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ObservedModels(Arc<Mutex<Vec<(ConnectionId, ModelDescription)>>>);

impl ObservedModels {
    /// Records an agent's model. A malformed one is ignored.
    pub fn record(&self, connection: ConnectionId, model: &str) {
        let Ok(model) = ModelDescription::parse(model) else {
            return;
        };
        let mut models = self.models();
        models.retain(|(other, _)| *other != connection);
        if models.len() >= MODELS_MAX {
            models.remove(0);
        }
        models.push((connection, model));
    }

    /// The latest report of one of these connections.
    pub(super) fn newest(
        &self,
        is_requested: impl Fn(ConnectionId) -> bool,
    ) -> Option<ModelDescription> {
        let models = self.models();
        let mut newest = models.iter().rev();
        let found = newest.find(|(connection, _)| is_requested(*connection));
        found.map(|(_, model)| model.clone())
    }

    fn models(&self) -> MutexGuard<'_, Vec<(ConnectionId, ModelDescription)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-156: the last report of an agent counts, among the requested ones; the table is bounded.
    #[test]
    fn the_newest_model_is_returned() {
        let models = ObservedModels::default();
        let model = |id: u64| format!(r#"{{"id":"m{id}","vendor":"v","contextWindow":1}}"#);
        for connection in [1, 2, 1] {
            models.record(ConnectionId(connection), &model(connection));
        }
        models.record(ConnectionId(3), "{}");
        let newest = |is_requested: &dyn Fn(ConnectionId) -> bool| {
            models.newest(is_requested).map(|it| it.id)
        };
        assert_eq!(newest(&|_| true).as_deref(), Some("m1"));
        assert_eq!(
            newest(&|connection| connection == ConnectionId(2)).as_deref(),
            Some("m2")
        );
        assert_eq!(newest(&|_| false), None);
        for connection in 0..2 * MODELS_MAX as u64 {
            models.record(ConnectionId(connection), &model(connection));
        }
        assert_eq!(models.models().len(), MODELS_MAX);
    }
}
