"""Pieces in the files of `torch.distributed.checkpoint`: each rank writes its own, and reads what it will hold.

Floor 2, room `parallel`. Read `held` first. torch's `save` would do the same, but it speaks through process groups, and
ranks of the simulated world have none: so its planner and its writer are called in its order here, and what ranks have
to tell each other goes through our communicator. Any program that reads such checkpoints can read these.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import (
    ChunkStorageMetadata,
    DefaultSavePlanner,
    FileSystemReader,
    FileSystemWriter,
    LoadPlan,
    LoadPlanner,
    Metadata,
    ReadItem,
    SavePlan,
    TensorStorageMetadata,
    WriteItem,
)
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from lockstep.comm import Communicator
from lockstep.parallel.checkpoint.errors import CheckpointError
from lockstep.parallel.checkpoint.held import Piece
from lockstep.parallel.checkpoint.together import from_every_rank, on_rank_0

Files = dict[str, tuple[int, int]]
"""Size in bytes and CRC-32 of each file, by its name in the folder."""


def write_pieces(comm: Communicator | None, folder: Path, pieces: Sequence[Piece]) -> Files:
    """Collective: write every rank's pieces to `folder`, one file a rank; where several have the same one, the first does.

    Raises CheckpointError, on every rank, when one cannot write or what they hold together has gaps.
    """
    rank = 0 if comm is None else comm.rank
    planner, writer = _Saver(pieces), FileSystemWriter(folder)
    writer.set_up_storage_writer(rank == 0)
    plans = from_every_rank(comm, lambda: writer.prepare_local_plan(planner.create_local_plan()))
    plans, metadata = planner.create_global_plan(plans)
    plan = planner.finish_plan(writer.prepare_global_plan(plans)[rank])

    def write() -> tuple[list, Files]:
        written = writer.write_data(plan, planner).wait()
        return written, checksums(folder, {result.storage_data.relative_path for result in written})

    results = from_every_rank(comm, write)
    files = {name: mark for _, own in results for name, mark in own.items()}

    def finish() -> Files:
        missing = next((name for name in files if not (folder / name).is_file()), None)
        if missing:
            raise CheckpointError(
                f"{missing}, which another rank wrote to {folder}, is not there for this one: all ranks need one folder "
                f"that they share."
            )
        writer.finish(metadata, [written for written, _ in results])
        return files | checksums(folder, [".metadata"])

    return on_rank_0(comm, finish)


def read_pieces(folder: Path, pieces: Sequence[Piece]) -> None:
    """Fill the pieces' values from `folder`. Raises CheckpointError when it has not all of a piece."""
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    planner = _Loader(pieces, metadata)
    reader.set_up_storage_reader(metadata, False)
    reader.read_data(reader.prepare_local_plan(planner.create_local_plan()), planner).wait()


def saved_rows(folder: Path) -> Mapping[str, Tensor]:
    """For each row in `folder` an empty tensor of its size and dtype, which takes no memory."""
    rows = FileSystemReader(folder).read_metadata().state_dict_metadata
    return {name: torch.empty(row.size, dtype=row.properties.dtype, device="meta") for name, row in rows.items()}


def checksums(folder: Path, names: Sequence[str] | set[str]) -> Files:
    """Of files in `folder`, read in parts."""
    found = {}
    for name in sorted(names):
        size = mark = 0
        with (folder / name).open("rb") as file:
            while part := file.read(2**20):
                size, mark = size + len(part), zlib.crc32(part, mark)
        found[name] = size, mark
    return found


class _Saver(DefaultSavePlanner):
    """Plans to write each piece as a shard of the row that it is part of."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        # What several ranks have is rank 0's: copies may drift apart, as batch norm's statistics do.
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True)
        self._values = {_index(piece): piece for piece in pieces}

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([_item(index, piece) for index, piece in self._values.items()])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._values[write_item.index].values


class _Loader(LoadPlanner):
    """Plans to read what the pieces need of each row."""

    def __init__(self, pieces: Sequence[Piece], metadata: Metadata) -> None:
        self._values = {_index(piece): piece for piece in pieces}
        self._rows = metadata.state_dict_metadata

    def create_local_plan(self) -> LoadPlan:
        return LoadPlan([item for piece in self._values.values() for item in self._items(piece)])

    def _items(self, piece: Piece) -> list[ReadItem]:
        row = self._rows.get(piece.name)
        if not isinstance(row, TensorStorageMetadata) or tuple(row.size) != (piece.total,):
            has = f"{row.size.numel()} elements" if isinstance(row, TensorStorageMetadata) else "nothing"
            raise CheckpointError(f"the checkpoint has {has} of {piece.name}, where {piece.total} are needed.")
        items = create_read_items_for_chunk_list(piece.name, row, [_chunk(piece)])
        if sum(item.lengths.numel() for item in items) != piece.values.numel():
            raise CheckpointError(f"the checkpoint has gaps in {piece.name}.")
        return items

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        values = self._values[read_item.dest_index].values
        return values.narrow(0, read_item.dest_offsets[0], read_item.lengths[0])

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing is left to do: it was read into its place."""

    def set_up_planner(self, state_dict: dict, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """All is known from the start."""

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        raise CheckpointError(f"{read_item.dest_index.fqn} is no tensor: another program wrote this checkpoint.")


def _index(piece: Piece) -> MetadataIndex:
    return MetadataIndex(piece.name, (piece.first,))


def _chunk(piece: Piece) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size([piece.first]), torch.Size([piece.values.numel()]))


def _item(index: MetadataIndex, piece: Piece) -> WriteItem:
    data = TensorWriteData(_chunk(piece), TensorProperties.create_from_tensor(piece.values), torch.Size([piece.total]))
    return WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)
