//! Lists pins for the operator.

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
    /// How a change is handled; `None` before the tools were listed since the kernel started.
    pub mode: Option<PinMode>,
    /// The number of all pins.
    pub total: usize,
    /// Sorted by name.
    pub tools: Vec<PinnedTool>,
    /// More pins follow.
    pub has_more: bool,
}

/// The approved and the current definition of a tool, each as the server wrote it.
#[derive(Clone, Debug, Default)]
pub struct DefinitionPair {
    /// `None` if it is too long to store.
    pub approved: Option<String>,
    /// `None` if it equals the approved one, or if it was not listed since the kernel started.
    pub current: Option<Arc<CatalogTool>>,
}

impl PinsHandle {
    /// At most `limit` pins of a server, starting after `after`.
    ///
    /// # Errors
    /// The server's file cannot be used.
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

    /// The approved and the current definition of a pinned tool.
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
            let current = lock(&server_pins).changed.get(&tool).cloned();
            Ok::<_, String>(DefinitionPair {
                approved: approved.map(String::from),
                current,
            })
        });
        reading.await.unwrap_or_else(|why| Err(why.to_string()))
    }
}

impl SharedPins {
    /// Reads the pins of a server, from their file if that was not read yet. Blocks.
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
