use super::Failed;
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}
pub(super) async fn run(_args: DemoArgs) -> Result<(), Failed> { Ok(()) }
