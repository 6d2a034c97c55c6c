//! `sampling/*`.

super::methods! { "sampling/createMessage" => CreateMessage }

/// `sampling/createMessage`: a server asks the client's model. Relayed as it is.
#[derive(Debug)]
pub struct CreateMessage;
