"""The client: it trains as ever, and answers fedhist's queries beside that."""

import numpy as np
import polars as pl
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedhist as fh

training = ClientApp()


def load(context: Context) -> pl.DataFrame:
    """Read this node's partition."""
    node = context.node_config["partition-id"]
    return pl.read_parquet(f"{context.run_config['data']}/{node}.parquet")


def design(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the model's inputs, a constant and decades of age, and cups of tea."""
    frame = load(context)
    age = frame["age"].to_numpy() / 10.0
    return np.stack([np.ones(len(age)), age], axis=1), frame["cups"].to_numpy()


@training.train()
def train(message: Message, context: Context) -> Message:
    """Take some steps of gradient descent."""
    (w,) = message.content["arrays"].to_numpy_ndarrays()
    x, y = design(context)
    for _ in range(200):
        w = w - 0.03 * x.T @ (x @ w - y) / len(y)
    reply = {"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(reply), reply_to=message)


@training.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return the mean squared error."""
    (w,) = message.content["arrays"].to_numpy_ndarrays()
    x, y = design(context)
    metrics = MetricRecord({"mse": float(np.mean((x @ w - y) ** 2)), "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


app = fh.flower.client_app(
    load, fh.flower.Policy(epsilon=2.0), app=training, user="customer", item="tea"
)
