"""Programs written with torch alone."""

from following import slow_when_compiled
from own_programs import train_dqn, train_gnn, train_lstm, train_unet, train_vae

TRAINING = slice(2, 4)  # the second step finds that Adam's scalars change


@slow_when_compiled
def test_unet(follow):
    follow(
        train_unet,
        TRAINING,
        windows=2,  # the second: the moving average
        native={
            "aten::arange.start_out",
            "aten::avg_pool2d_backward",
            "aten::normal_",
            "aten::random_.from",
            "aten::upsample_bilinear2d",
            "aten::upsample_bilinear2d_backward",
        },
    )


@slow_when_compiled
def test_lstm_language_model(follow):
    follow(
        train_lstm,
        TRAINING,
        windows=1,
        native={
            "aten::bernoulli_.float",
            "aten::mkldnn_rnn_layer_backward",
            "shark::rnn_layer",
        },
    )


def test_graph_network(follow):
    follow(
        train_gnn,
        TRAINING,
        windows=1,
        native={"aten::_index_put_impl_", "aten::scatter_reduce.two"},
    )


@slow_when_compiled
def test_variational_autoencoder(follow):
    # A distribution asks whether its parameters are valid: a window ends at each.
    follow(train_vae, TRAINING, windows=3, native={"aten::normal_"})


def test_deep_q_learning(follow):
    follow(train_dqn, slice(9, 10), windows=3, native=set())
