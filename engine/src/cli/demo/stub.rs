//! Stands in for what a worker of the embedded queue can do until the engine has it.

use crate::{
    engine::{Run, Worker},
    error::CallError,
    kernel::id::OccurrenceId,
};

/// Methods of [`Worker`]; its own take precedence once they are there.
pub(crate) trait WorkerStub {
    async fn next(&mut self) -> Option<Run>;
}

impl WorkerStub for Worker {
    async fn next(&mut self) -> Option<Run> {
        None
    }
}

/// Methods of [`Run`]; its own take precedence once they are there.
pub(crate) trait RunStub {
    fn occurrence_id(&self) -> OccurrenceId;
    async fn complete(self) -> Result<(), CallError>;
}

impl RunStub for Run {
    fn occurrence_id(&self) -> OccurrenceId {
        OccurrenceId([0; 16])
    }
    async fn complete(self) -> Result<(), CallError> {
        Ok(())
    }
}
