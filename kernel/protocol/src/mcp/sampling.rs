//! `sampling/*`.

super::methods! { "sampling/createMessage" => CreateMessage }

/// `sampling/createMessage`: a server's request to the client's model. Relayed unchanged.
#[derive(Debug)]
pub struct CreateMessage;
