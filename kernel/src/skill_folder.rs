//! The server behind `mgp skills serve`: the skills of a folder, over stdin and stdout.

mod scan;
mod server;

use std::io;
use std::path::Path;

use mgp_platform::watch::{Depth, Watcher};
use tokio::sync::mpsc;

/// Serves the skills of a folder on stdin and stdout until stdin ends.
///
/// # Errors
/// Those of stdin and stdout, or if there is no such folder.
pub(crate) fn run(folder: &Path) -> io::Result<()> {
    let folder = folder.canonicalize()?;
    let (sender, changes) = mpsc::channel(1);
    let watcher = Watcher::new(move |_| {
        // One pending change covers any number of changes.
        let _ = sender.try_send(());
    });
    let watching = watcher.and_then(|mut it| it.add(&folder, Depth::Tree).map(|()| it));
    if let Err(error) = &watching {
        eprintln!("changes of the folder are not noticed: {error}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let served = runtime.block_on(server::serve(input, output, folder, changes));
    // Stdin is read on its own thread, which cannot be joined.
    runtime.shutdown_background();
    served
}
