"""Upkeep over scripted parts: only what nobody needs is collected, and only at the second look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from kennel.control.upkeep import Upkeep
from kennel.domain.sandbox import Projection, Workspace
from kennel.ports.blobs import BlobInfo
from kennel.wire.node import LayersHere

pytestmark = pytest.mark.anyio
A, B, C, D, E = (letter * 64 for letter in "abcde")


class Store:
    """Blobs that are all old."""

    def __init__(self, *layers: str) -> None:
        self.layers = set(layers)

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        for layer in sorted(self.layers):
            yield BlobInfo(f"{prefix}/{layer}", 1, 0.0)

    async def delete(self, name: str) -> None:
        self.layers.discard(name.removeprefix("layers/"))


class Machine:
    """A node's cache; `held` is what uppers lie on."""

    def __init__(self, *layers: str, held: tuple[str, ...] = ()) -> None:
        self.layers, self.held = set(layers), list(held)

    async def list_layers(self) -> LayersHere:
        return LayersHere(dict.fromkeys(self.layers, 1), self.held)

    async def remove_layer(self, layer: str) -> None:
        self.layers.discard(layer)


def upkeep(store: Store, node: Machine, *, pointer: tuple[str, ...], origin: Any = None, grace: float = 0) -> Upkeep:
    state = Projection(status="stopped", workspace=Workspace(layers=pointer))
    claim = SimpleNamespace(path="/sandboxes/a", options=SimpleNamespace(origin=origin))

    async def projects() -> list[str]:
        return ["default"]

    async def rows(_: str) -> list[Any]:
        return [(claim, state)]

    async def nothing(*_: Any, **__: Any) -> list[Any]:
        return []

    catalogue: Any = SimpleNamespace(list=rows, refresh=nothing)
    fleet: Any = SimpleNamespace(node=node, workspaces=SimpleNamespace(asked_for={}))
    return Upkeep(projects, catalogue, fleet, SimpleNamespace(read=nothing), store, 900, grace)  # type: ignore[arg-type]


async def test_what_a_pointer_an_upper_and_a_fork_in_progress_need_stays() -> None:
    store, node = Store(A, B, C, D, E), Machine(A, B, D, E, held=(B,))
    keeper = upkeep(store, node, pointer=(A,), origin={"layers": [C]})
    assert await keeper.collect() == []
    assert sorted(await keeper.collect()) == [D, E]
    assert (store.layers, node.layers) == ({A, B, C}, {A, B})


async def test_a_layer_that_was_asked_for_meanwhile_stays() -> None:
    store, node = Store(A, B), Machine()
    keeper = upkeep(store, node, pointer=(A,), grace=1)
    await keeper.collect()
    keeper._fleet.workspaces.asked_for[B] = float("inf")
    assert await keeper.collect() == []
    assert store.layers == {A, B}


async def test_one_look_deletes_nothing_however_old_it_is() -> None:
    store = Store(A)
    assert await upkeep(store, Machine(), pointer=()).collect() == []
    assert store.layers == {A}
