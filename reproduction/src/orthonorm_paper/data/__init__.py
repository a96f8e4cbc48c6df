"""Data sets by name: real ones from their public files, and synthetic ones that say so in their names."""

from .dataset import Dataset as Dataset
from .imagenet import ImageFolders as ImageFolders
from .order import batch_order as batch_order
from .order import generator as generator
from .table import DATASETS as DATASETS
from .table import IMAGE_SETS as IMAGE_SETS
from .table import check_dataset as check_dataset
from .table import load_data as load_data
from .table import load_dataset as load_dataset
