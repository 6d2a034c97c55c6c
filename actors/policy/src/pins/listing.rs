//! What is pinned, for the operator to read.

use std::sync::Arc;

use mgp_engine::policy::pins::{PinMode, PinnedTool};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::ids::ServerId;
use mgp_runtime::task;

use super::pin_file::PinFile;
use super::{PinsHandle, SharedPins, lock};

/// A page of the pins of a server.
#[derive(Clone, Debug, Default)]
pub struct PinnedPage {
    /// What happens to a tool that changes; `None` before its tools were listed in this life of the kernel.
    pub mode: Option<PinMode>,
    /// How many there are in all.
    pub total: usize,
    /// In the order of their names.
    pub tools: Vec<PinnedTool>,
    /// There are more after these.
    pub has_more: bool,
}

/// The definition of a tool as it was approved, and as it is now, each as the server wrote it.
#[derive(Clone, Debug, Default)]
pub struct DefinitionPair {
    /// `None` where it is too long to be kept.
    pub approved: Option<String>,
    /// `None` where it is the approved one, or its server did not list it in this life of the kernel.
    pub current: Option<Arc<CatalogTool>>,
}

impl PinsHandle {
    /// At most `limit` pins of a server, from the one after `after` on.
    ///
    /// # Errors
    /// Why its file cannot be used, in words.
    pub async fn list(
        &self,
        server: &ServerId,
        after: Option<String>,
        limit: usize,
    ) -> Result<PinnedPage, String> {
        let (shared, server) = (self.0.clone(), server.clone());
        let reading = task::run_blocking("pins.listed", move || {
            shared.with_file(&server, |mode, file| {
                let mut tools = file.pins().pinned_tools(&server, after.as_deref());
                PinnedPage {
                    mode,
                    total: file.pins().count(&server),
                    tools: tools.by_ref().take(limit).collect(),
                    has_more: tools.next().is_some(),
                }
            })
        });
        reading.await.unwrap_or_else(|why| Err(why.to_string()))
    }

    /// What a pinned tool was, and what it is.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn definitions(
        &self,
        server: &ServerId,
        tool: String,
    ) -> Result<DefinitionPair, String> {
        let (shared, server) = (self.0.clone(), server.clone());
        let reading = task::run_blocking("pins.definitions", move || {
            let approved = shared.with_file(&server, |_, file| file.texts().remove(&tool))?;
            let server_pins = shared.server_pins(&server);
            let now = lock(&server_pins).changed.get(&tool).cloned();
            Ok::<_, String>(DefinitionPair {
                approved: approved.map(String::from),
                current: now,
            })
        });
        reading.await.unwrap_or_else(|why| Err(why.to_string()))
    }
}

impl SharedPins {
    /// Reads the pins of a server, from their file where nobody has read that yet. Blocks.
    fn with_file<T>(
        &self,
        server: &ServerId,
        read: impl FnOnce(Option<PinMode>, &PinFile) -> T,
    ) -> Result<T, String> {
        let server_pins = self.server_pins(server);
        let server_pins = lock(&server_pins);
        let mode = server_pins.rules.as_ref().map(|rules| rules.mode);
        match &server_pins.pin_file {
            Some(file) => Ok(read(mode, file)),
            None => Ok(read(mode, &PinFile::read(&self.folder, server)?)),
        }
    }
}
