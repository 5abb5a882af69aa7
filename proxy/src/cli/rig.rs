use super::Failed;
#[derive(Debug, clap::Args)]
pub(super) struct RigArgs {}
pub(super) async fn run(_args: RigArgs) -> Result<(), Failed> { Ok(()) }
