//! Which models agents use, as they said it at hooks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_protocol::ids::ConnectionId;
use mgp_protocol::mcpl::model::ModelDescription;

/// Agents whose model is known; the one that said it longest ago goes first.
const MODELS_MAX: usize = 1024;

/// The models of agents. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ObservedModels(Arc<Mutex<Vec<(ConnectionId, ModelDescription)>>>);

impl ObservedModels {
    /// An agent said which it uses. What is no model says nothing.
    pub fn record(&self, connection: ConnectionId, model: &str) {
        let Ok(model) = ModelDescription::parse(model) else {
            return;
        };
        let mut models = self.models();
        models.retain(|(of, _)| *of != connection);
        if models.len() >= MODELS_MAX {
            models.remove(0);
        }
        models.push((connection, model));
    }

    /// What was said last by one of these.
    pub(super) fn newest(&self, of: impl Fn(ConnectionId) -> bool) -> Option<ModelDescription> {
        let models = self.models();
        let mut newest = models.iter().rev();
        let seen = newest.find(|(connection, _)| of(*connection));
        seen.map(|(_, model)| model.clone())
    }

    fn models(&self) -> MutexGuard<'_, Vec<(ConnectionId, ModelDescription)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-156: the last word of an agent counts, of those that are asked about; the table is bounded.
    #[test]
    fn the_newest_model_is_told() {
        let models = ObservedModels::default();
        let model = |id: u64| format!(r#"{{"id":"m{id}","vendor":"v","contextWindow":1}}"#);
        for of in [1, 2, 1] {
            models.record(ConnectionId(of), &model(of));
        }
        models.record(ConnectionId(3), "{}");
        let newest = |of: &dyn Fn(ConnectionId) -> bool| models.newest(of).map(|it| it.id);
        assert_eq!(newest(&|_| true).as_deref(), Some("m1"));
        assert_eq!(newest(&|of| of == ConnectionId(2)).as_deref(), Some("m2"));
        assert_eq!(newest(&|_| false), None);
        for of in 0..2 * MODELS_MAX as u64 {
            models.record(ConnectionId(of), &model(of));
        }
        assert_eq!(models.models().len(), MODELS_MAX);
    }
}
